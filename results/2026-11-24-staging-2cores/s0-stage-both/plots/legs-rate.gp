# Run as: gnuplot legs-rate.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'legs-rate.gnuplot.svg'
set title 'Rate of the three legs: a source and a sink that stand still now and then'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'From one event of the command to the next.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'seconds'
set xrange [0:24]
set xtics ('0' 0, '2' 2, '4' 4, '6' 6, '8' 8, '10' 10, '12' 12, '14' 14, '16' 16, '18' 18, '20' 20, '22' 22, '24' 24)
set ylabel 'MB/s'
set yrange [0:120]
set ytics ('0' 0, '10' 10, '20' 20, '30' 30, '40' 40, '50' 50, '60' 60, '70' 70, '80' 80, '90' 90, '100' 100, '110' 110, '120' 120)
plot \
  'legs-rate.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'read from the source', \
  'legs-rate.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'sent over the network', \
  'legs-rate.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title 'stored at the destination'
