# Run as: gnuplot rate-over-streams.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'rate-over-streams.gnuplot.svg'
set title 'Rate over streams'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Medians; bars are the least and the most.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'streams'
set xrange [2:10]
set logscale x 10
set xtics ('2' 2, '5' 5, '10' 10)
set ylabel 'Gbit/s'
set yrange [0:5]
set ytics ('0' 0, '0.5' 0.5, '1' 1, '1.5' 1.5, '2' 2, '2.5' 2.5, '3' 3, '3.5' 3.5, '4' 4, '4.5' 4.5, '5' 5)
plot \
  'rate-over-streams.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg, gen:24x32MiB, rate=1Gbit rtt=300us loss=0 cc=cubic', \
  'rate-over-streams.dat' index 0 using 1:2:3:4 with yerrorbars lc rgb '#0b62a8' pt 0 notitle, \
  'rate-over-streams.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'thalweg, gen:24x32MiB, rate=1Gbit rtt=1ms loss=0 cc=cubic', \
  'rate-over-streams.dat' index 1 using 1:2:3:4 with yerrorbars lc rgb '#c8500a' pt 0 notitle, \
  'rate-over-streams.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title 'thalweg, gen:24x32MiB, rate=1Gbit rtt=3ms loss=0 cc=cubic', \
  'rate-over-streams.dat' index 2 using 1:2:3:4 with yerrorbars lc rgb '#0a7d5a' pt 0 notitle, \
  'rate-over-streams.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 2.2 pt 11 title 'thalweg, gen:24x32MiB, rate=2Gbit rtt=300us loss=0 cc=cubic', \
  'rate-over-streams.dat' index 3 using 1:2:3:4 with yerrorbars lc rgb '#a3418a' pt 0 notitle, \
  'rate-over-streams.dat' index 4 using 1:2 with linespoints lc rgb '#8a6d00' lw 2.2 pt 13 title 'thalweg, gen:24x32MiB, rate=2Gbit rtt=1ms loss=0 cc=cubic', \
  'rate-over-streams.dat' index 4 using 1:2:3:4 with yerrorbars lc rgb '#8a6d00' pt 0 notitle, \
  'rate-over-streams.dat' index 5 using 1:2 with linespoints lc rgb '#4a54c9' lw 2.2 pt 5 title 'thalweg, gen:24x32MiB, rate=2Gbit rtt=3ms loss=0 cc=cubic', \
  'rate-over-streams.dat' index 5 using 1:2:3:4 with yerrorbars lc rgb '#4a54c9' pt 0 notitle, \
  'rate-over-streams.dat' index 6 using 1:2 with linespoints lc rgb '#7a4a1e' lw 2.2 pt 7 title 'thalweg, gen:24x32MiB, rate=5Gbit rtt=300us loss=0 cc=cubic', \
  'rate-over-streams.dat' index 6 using 1:2:3:4 with yerrorbars lc rgb '#7a4a1e' pt 0 notitle, \
  'rate-over-streams.dat' index 7 using 1:2 with linespoints lc rgb '#4f6272' lw 2.2 pt 9 title 'thalweg, gen:24x32MiB, rate=5Gbit rtt=1ms loss=0 cc=cubic', \
  'rate-over-streams.dat' index 7 using 1:2:3:4 with yerrorbars lc rgb '#4f6272' pt 0 notitle
