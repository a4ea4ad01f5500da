# Run as: gnuplot rate-over-size-6-normalised.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'rate-over-size-6-normalised.gnuplot.svg'
set title 'Rate over file size, rate=2Gbit rtt=0s loss=0 cc=cubic streams=auto, normalised'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'x = file size / (plateau / (8 x files per second)), y = rate / plateau, each curve by its own. Medians; bars are the least and the most. File size is the mean of a set.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'file size / size at which both limits meet'
set xrange [0.001953125:4194304]
set logscale x 2
set xtics ('1/256' 0.00390625, '1/16' 0.0625, '1' 1, '16' 16, '256' 256, '4096' 4096, '65,536' 65536, '1,048,576' 1048576)
set ylabel 'rate / plateau'
set yrange [0:1.1]
set ytics ('0' 0, '0.1' 0.1, '0.2' 0.2, '0.3' 0.30000000000000004, '0.4' 0.4, '0.5' 0.5, '0.6' 0.6000000000000001, '0.7' 0.7000000000000001, '0.8' 0.8, '0.9' 0.9, '1' 1, '1.1' 1.1)
plot \
  'rate-over-size-6-normalised.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg', \
  'rate-over-size-6-normalised.dat' index 1 using 1:2 with linespoints lc rgb '#0b62a8' lw 1.4 dt 2 pt 4 title 'zx, bulk, 10 ms (published)', \
  'rate-over-size-6-normalised.dat' index 1 using 1:2:3:4 with yerrorbars lc rgb '#0b62a8' pt 0 notitle, \
  'rate-over-size-6-normalised.dat' index 2 using 1:2 with linespoints lc rgb '#c8500a' lw 1.4 dt 2 pt 6 title 'zx, bulk, 50 ms (published)', \
  'rate-over-size-6-normalised.dat' index 2 using 1:2:3:4 with yerrorbars lc rgb '#c8500a' pt 0 notitle, \
  'rate-over-size-6-normalised.dat' index 3 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 dt 2 pt 8 title 'zx, bulk, 100 ms (published)', \
  'rate-over-size-6-normalised.dat' index 3 using 1:2:3:4 with yerrorbars lc rgb '#0a7d5a' pt 0 notitle, \
  'rate-over-size-6-normalised.dat' index 4 using 1:2 with lines lc rgb '#8a8f98' lw 1 title 'roof'
