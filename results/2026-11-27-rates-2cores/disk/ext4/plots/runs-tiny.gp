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
set xrange [0:3]
set xtics ('0' 0, '0.5' 0.5, '1' 1, '1.5' 1.5, '2' 2, '2.5' 2.5, '3' 3)
set ylabel 'Gbit/s'
set yrange [0:0.18]
set ytics ('0' 0, '0.02' 0.02, '0.04' 0.04, '0.06' 0.06, '0.08' 0.08, '0.1' 0.1, '0.12' 0.12, '0.14' 0.14, '0.16' 0.16, '0.18' 0.18)
plot \
  'runs-tiny.dat' index 0 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 pt 9 title 'rsync', \
  'runs-tiny.dat' index 1 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg (local)', \
  'runs-tiny.dat' index 2 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'thalweg'
