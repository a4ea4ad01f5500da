# Run as: gnuplot runs-1x1072MiB.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'runs-1x1072MiB.gnuplot.svg'
set title '1x1072MiB: every run'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'One mark for each counted run; tools alternated within a round.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'round'
set xrange [0:4]
set xtics ('0' 0, '0.5' 0.5, '1' 1, '1.5' 1.5, '2' 2, '2.5' 2.5, '3' 3, '3.5' 3.5, '4' 4)
set ylabel 'Gbit/s'
set yrange [0:0.5]
set ytics ('0' 0, '0.05' 0.05, '0.1' 0.1, '0.15' 0.15000000000000002, '0.2' 0.2, '0.25' 0.25, '0.3' 0.30000000000000004, '0.35' 0.35000000000000003, '0.4' 0.4, '0.45' 0.45, '0.5' 0.5)
plot \
  'runs-1x1072MiB.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg'
