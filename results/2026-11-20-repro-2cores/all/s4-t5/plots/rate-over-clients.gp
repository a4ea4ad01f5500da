# Run as: gnuplot rate-over-clients.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'rate-over-clients.gnuplot.svg'
set title 'Rate over clients'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Medians; bars are the least and the most.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'clients'
set xrange [2:10]
set logscale x 10
set xtics ('2' 2, '5' 5, '10' 10)
set ylabel 'Gbit/s'
set yrange [0:1]
set ytics ('0' 0, '0.1' 0.1, '0.2' 0.2, '0.3' 0.30000000000000004, '0.4' 0.4, '0.5' 0.5, '0.6' 0.6000000000000001, '0.7' 0.7000000000000001, '0.8' 0.8, '0.9' 0.9, '1' 1)
plot \
  'rate-over-clients.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg, 1000x64KiB, rate=1Gbit rtt=36ms loss=0 cc=cubic streams=1', \
  'rate-over-clients.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'thalweg, 8x16MiB, rate=1Gbit rtt=36ms loss=0 cc=cubic streams=1', \
  'rate-over-clients.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title 'thalweg, 1x128MiB, rate=1Gbit rtt=36ms loss=0 cc=cubic streams=1', \
  'rate-over-clients.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 2.2 pt 11 title 'thalweg, 1000x64KiB, rate=1Gbit rtt=36ms loss=0 cc=cubic streams=auto', \
  'rate-over-clients.dat' index 4 using 1:2 with linespoints lc rgb '#8a6d00' lw 2.2 pt 13 title 'thalweg, 8x16MiB, rate=1Gbit rtt=36ms loss=0 cc=cubic streams=auto', \
  'rate-over-clients.dat' index 5 using 1:2 with linespoints lc rgb '#4a54c9' lw 2.2 pt 5 title 'thalweg, 1x128MiB, rate=1Gbit rtt=36ms loss=0 cc=cubic streams=auto'
