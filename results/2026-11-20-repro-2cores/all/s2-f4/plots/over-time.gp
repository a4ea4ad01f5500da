# Run as: gnuplot over-time.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'over-time.gnuplot.svg'
set title 'Several streams, 75 ms'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Bytes that left the sending host''s interface, headers and retransmissions included.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'seconds'
set xrange [0:45]
set xtics ('0' 0, '5' 5, '10' 10, '15' 15, '20' 20, '25' 25, '30' 30, '35' 35, '40' 40, '45' 45)
set ylabel 'Gbit/s'
set yrange [0:1.4000000000000001]
set ytics ('0' 0, '0.2' 0.2, '0.4' 0.4, '0.6' 0.6000000000000001, '0.8' 0.8, '1' 1, '1.2' 1.2000000000000002, '1.4' 1.4000000000000001)
plot \
  'over-time.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg', \
  'over-time.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 1.4 pt 7 title 'globus-url-copy', \
  'over-time.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 pt 9 title 'rsync', \
  'over-time.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 1.4 pt 11 title 'xrdcp', \
  'over-time.dat' index 4 using 1:2 with linespoints lc rgb '#8a6d00' lw 1.4 pt 13 title 'rclone'
