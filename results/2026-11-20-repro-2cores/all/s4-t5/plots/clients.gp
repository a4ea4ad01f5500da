# Run as: gnuplot clients.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'clients.gnuplot.svg'
set title 'Client scaling'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'All clients together, from the common start to the end of the last; TLS and digests on.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'clients'
set xrange [1:8]
set logscale x 2
set xtics ('1' 1, '2' 2, '4' 4, '8' 8)
set ylabel 'Gbit/s'
set yrange [0:1]
set ytics ('0' 0, '0.1' 0.1, '0.2' 0.2, '0.3' 0.30000000000000004, '0.4' 0.4, '0.5' 0.5, '0.6' 0.6000000000000001, '0.7' 0.7000000000000001, '0.8' 0.8, '0.9' 0.9, '1' 1)
plot \
  'clients.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title '1x128MiB, streams 1', \
  'clients.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title '1x128MiB, streams auto', \
  'clients.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title '8x16MiB, streams 1', \
  'clients.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 2.2 pt 11 title '8x16MiB, streams auto', \
  'clients.dat' index 4 using 1:2 with linespoints lc rgb '#8a6d00' lw 2.2 pt 13 title '1000x64KiB, streams 1', \
  'clients.dat' index 5 using 1:2 with linespoints lc rgb '#4a54c9' lw 2.2 pt 5 title '1000x64KiB, streams auto'
