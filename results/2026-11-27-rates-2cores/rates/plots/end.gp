# Run as: gnuplot end.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'end.gnuplot.svg'
set title 'How copies of lognormal end'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Bytes that left the sending host''s interface, every 50 ms, with headers and retransmissions.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'seconds to the last content'
set xrange [-3:-0]
set xtics ('-3' -3, '-2.5' -2.5, '-2' -2, '-1.5' -1.5, '-1' -1, '-0.5' -0.5, '0' 0)
set ylabel 'Gbit/s'
set yrange [0:2.2]
set ytics ('0' 0, '0.2' 0.2, '0.4' 0.4, '0.6' 0.6000000000000001, '0.8' 0.8, '1' 1, '1.2' 1.2000000000000002, '1.4' 1.4000000000000001, '1.6' 1.6, '1.8' 1.8, '2' 2, '2.2' 2.2)
plot \
  'end.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg', \
  'end.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 1.4 pt 7 title 'earlier', \
  'end.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 pt 9 title 'globus-url-copy', \
  'end.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 1.4 pt 11 title 'rsync', \
  [-3:-0] 2 with lines lc rgb '#8a8f98' lw 1 dt 3 title 'link'
