# Run as: gnuplot runs-small.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'runs-small.gnuplot.svg'
set title 'small: every run'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'One mark for each counted run; tools alternated within a round.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'round'
set xrange [0:3]
set xtics ('0' 0, '0.5' 0.5, '1' 1, '1.5' 1.5, '2' 2, '2.5' 2.5, '3' 3)
set ylabel 'Gbit/s'
set yrange [0:16]
set ytics ('0' 0, '2' 2, '4' 4, '6' 6, '8' 8, '10' 10, '12' 12, '14' 14, '16' 16)
plot \
  'runs-small.dat' index 0 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 pt 9 title 'rsync', \
  'runs-small.dat' index 1 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg (local)', \
  'runs-small.dat' index 2 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'thalweg'
