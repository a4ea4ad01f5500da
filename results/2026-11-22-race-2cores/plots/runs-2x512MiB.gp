# Run as: gnuplot runs-2x512MiB.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'runs-2x512MiB.gnuplot.svg'
set title '2x512MiB: every run'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'One mark for each counted run; tools alternated within a round.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'round'
set xrange [0:20]
set xtics ('0' 0, '2' 2, '4' 4, '6' 6, '8' 8, '10' 10, '12' 12, '14' 14, '16' 16, '18' 18, '20' 20)
set ylabel 'Gbit/s'
set yrange [0:25]
set ytics ('0' 0, '5' 5, '10' 10, '15' 15, '20' 20, '25' 25)
plot \
  'runs-2x512MiB.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'earlier', \
  'runs-2x512MiB.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'thalweg', \
  'runs-2x512MiB.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title 'earlier (local)', \
  'runs-2x512MiB.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 2.2 pt 11 title 'thalweg (local)'
