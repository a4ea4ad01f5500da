# Run as: gnuplot start.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'start.gnuplot.svg'
set title 'How copies of lognormal begin'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Bytes that left the sending host''s interface, every 50 ms, with headers and retransmissions.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'seconds from the first content'
set xrange [0:3]
set xtics ('0' 0, '0.5' 0.5, '1' 1, '1.5' 1.5, '2' 2, '2.5' 2.5, '3' 3)
set ylabel 'Gbit/s'
set yrange [0:4]
set ytics ('0' 0, '0.5' 0.5, '1' 1, '1.5' 1.5, '2' 2, '2.5' 2.5, '3' 3, '3.5' 3.5, '4' 4)
plot \
  'start.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg', \
  'start.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 1.4 pt 7 title 'earlier', \
  'start.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 pt 9 title 'globus-url-copy', \
  'start.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 1.4 pt 11 title 'rsync', \
  [0:3] 2 with lines lc rgb '#8a8f98' lw 1 dt 3 title 'link'
