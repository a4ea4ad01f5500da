# Run as: gnuplot runs-40x16KiB_back.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'runs-40x16KiB_back.gnuplot.svg'
set title '40x16KiB back: every run'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'One mark for each counted run; tools alternated within a round.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'round'
set xrange [0:10]
set xtics ('0' 0, '1' 1, '2' 2, '3' 3, '4' 4, '5' 5, '6' 6, '7' 7, '8' 8, '9' 9, '10' 10)
set ylabel 'Gbit/s'
set yrange [0:0.004]
set ytics ('0' 0, '0.0005' 0.0005, '0.001' 0.001, '0.0015' 0.0015, '0.002' 0.002, '0.0025' 0.0025, '0.003' 0.003, '0.0035' 0.0035, '0.004' 0.004)
plot \
  'runs-40x16KiB_back.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg', \
  'runs-40x16KiB_back.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 1.4 pt 7 title 'sftp'
