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
set xrange [0:100]
set xtics ('0 ms' 0, '10 ms' 10, '20 ms' 20, '30 ms' 30, '40 ms' 40, '50 ms' 50, '60 ms' 60, '70 ms' 70, '80 ms' 80, '90 ms' 90, '100 ms' 100)
set ylabel 'Gbit/s'
set yrange [0:1]
set ytics ('0' 0, '0.1' 0.1, '0.2' 0.2, '0.3' 0.30000000000000004, '0.4' 0.4, '0.5' 0.5, '0.6' 0.6000000000000001, '0.7' 0.7000000000000001, '0.8' 0.8, '0.9' 0.9, '1' 1)
plot \
  'rate-over-rtt.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg, 60x8KiB,60x16KiB,60x32KiB,60x64KiB,60x128KiB,60x256KiB,60x512KiB,60x1MiB,60x2MiB,60x4MiB, rate=1Gbit loss=0 cc=cubic streams=auto', \
  'rate-over-rtt.dat' index 0 using 1:2:3:4 with yerrorbars lc rgb '#0b62a8' pt 0 notitle, \
  'rate-over-rtt.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'thalweg, 1x256MiB,1x128MiB,1x64MiB,1x32MiB,1x16MiB,1x8MiB, rate=1Gbit loss=0 cc=cubic streams=auto', \
  'rate-over-rtt.dat' index 1 using 1:2:3:4 with yerrorbars lc rgb '#c8500a' pt 0 notitle, \
  'rate-over-rtt.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title 'thalweg, 2x256MiB, rate=1Gbit loss=0 cc=cubic streams=auto', \
  'rate-over-rtt.dat' index 2 using 1:2:3:4 with yerrorbars lc rgb '#0a7d5a' pt 0 notitle
