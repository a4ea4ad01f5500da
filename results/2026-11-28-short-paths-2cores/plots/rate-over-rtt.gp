# Run as: gnuplot rate-over-rtt.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'rate-over-rtt.gnuplot.svg'
set title 'Rate over rtt'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Medians; bars are the least and the most.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'rtt'
set xrange [0:3]
set xtics ('0 ms' 0, '0.5 ms' 0.5, '1 ms' 1, '1.5 ms' 1.5, '2 ms' 2, '2.5 ms' 2.5, '3 ms' 3)
set ylabel 'Gbit/s'
set yrange [0:2]
set ytics ('0' 0, '0.2' 0.2, '0.4' 0.4, '0.6' 0.6000000000000001, '0.8' 0.8, '1' 1, '1.2' 1.2000000000000002, '1.4' 1.4000000000000001, '1.6' 1.6, '1.8' 1.8, '2' 2)
plot \
  'rate-over-rtt.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg, gen:24x32MiB, rate=1Gbit loss=0 cc=cubic streams=auto', \
  'rate-over-rtt.dat' index 0 using 1:2:3:4 with yerrorbars lc rgb '#0b62a8' pt 0 notitle, \
  'rate-over-rtt.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'thalweg, gen:24x32MiB, rate=1Gbit loss=0 cc=cubic streams=2', \
  'rate-over-rtt.dat' index 1 using 1:2:3:4 with yerrorbars lc rgb '#c8500a' pt 0 notitle, \
  'rate-over-rtt.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title 'thalweg, gen:24x32MiB, rate=1Gbit loss=0 cc=cubic streams=4', \
  'rate-over-rtt.dat' index 2 using 1:2:3:4 with yerrorbars lc rgb '#0a7d5a' pt 0 notitle, \
  'rate-over-rtt.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 2.2 pt 11 title 'thalweg, gen:24x32MiB, rate=1Gbit loss=0 cc=cubic streams=8', \
  'rate-over-rtt.dat' index 3 using 1:2:3:4 with yerrorbars lc rgb '#a3418a' pt 0 notitle, \
  'rate-over-rtt.dat' index 4 using 1:2 with linespoints lc rgb '#8a6d00' lw 2.2 pt 13 title 'thalweg, gen:24x32MiB, rate=2Gbit loss=0 cc=cubic streams=auto', \
  'rate-over-rtt.dat' index 4 using 1:2:3:4 with yerrorbars lc rgb '#8a6d00' pt 0 notitle, \
  'rate-over-rtt.dat' index 5 using 1:2 with linespoints lc rgb '#4a54c9' lw 2.2 pt 5 title 'thalweg, gen:24x32MiB, rate=2Gbit loss=0 cc=cubic streams=2', \
  'rate-over-rtt.dat' index 5 using 1:2:3:4 with yerrorbars lc rgb '#4a54c9' pt 0 notitle, \
  'rate-over-rtt.dat' index 6 using 1:2 with linespoints lc rgb '#7a4a1e' lw 2.2 pt 7 title 'thalweg, gen:24x32MiB, rate=2Gbit loss=0 cc=cubic streams=4', \
  'rate-over-rtt.dat' index 6 using 1:2:3:4 with yerrorbars lc rgb '#7a4a1e' pt 0 notitle, \
  'rate-over-rtt.dat' index 7 using 1:2 with linespoints lc rgb '#4f6272' lw 2.2 pt 9 title 'thalweg, gen:24x32MiB, rate=2Gbit loss=0 cc=cubic streams=8', \
  'rate-over-rtt.dat' index 7 using 1:2:3:4 with yerrorbars lc rgb '#4f6272' pt 0 notitle
