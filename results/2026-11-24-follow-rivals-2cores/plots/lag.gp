# Run as: gnuplot lag.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'lag.gnuplot.svg'
set title 'Lag of growing files'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'round trip 74.0 ms; the longest lag in each part of the time' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'time of the write (s)'
set xrange [0:8]
set xtics ('0' 0, '1' 1, '2' 2, '3' 3, '4' 4, '5' 5, '6' 6, '7' 7, '8' 8)
set ylabel 'lag (ms)'
set yrange [20:10000]
set logscale y 10
set ytics ('20 ms' 20, '50 ms' 50, '100 ms' 100, '200 ms' 200, '500 ms' 500, '1 s' 1000, '2 s' 2000, '5 s' 5000, '10 s' 10000)
plot \
  'lag.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg', \
  'lag.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'rsync', \
  'lag.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title 'lsyncd', \
  'lag.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 2.2 pt 11 title 'tail', \
  'lag.dat' index 4 using 1:2 with linespoints lc rgb '#8a6d00' lw 2.2 pt 13 title 'rclone', \
  'lag.dat' index 5 using 1:2 with linespoints lc rgb '#4a54c9' lw 2.2 pt 5 title 'xrdcp'
