# Run as: gnuplot runs-tiny.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'runs-tiny.gnuplot.svg'
set title 'tiny: every run'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'One mark for each counted run; tools alternated within a round.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'round'
set xrange [0:10]
set xtics ('0' 0, '1' 1, '2' 2, '3' 3, '4' 4, '5' 5, '6' 6, '7' 7, '8' 8, '9' 9, '10' 10)
set ylabel 'Gbit/s'
set yrange [0:0.7000000000000001]
set ytics ('0' 0, '0.1' 0.1, '0.2' 0.2, '0.3' 0.30000000000000004, '0.4' 0.4, '0.5' 0.5, '0.6' 0.6000000000000001, '0.7' 0.7000000000000001)
plot \
  'runs-tiny.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg', \
  'runs-tiny.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'earlier', \
  'runs-tiny.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 pt 9 title 'globus-url-copy', \
  'runs-tiny.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 1.4 pt 11 title 'rsync'
