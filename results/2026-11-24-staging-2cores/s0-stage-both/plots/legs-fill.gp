# Run as: gnuplot legs-fill.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'legs-fill.gnuplot.svg'
set title 'Fill of the buffers: a source and a sink that stand still now and then'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'What waits in them, by the events of the command.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'seconds'
set xrange [0:24]
set xtics ('0' 0, '2' 2, '4' 4, '6' 6, '8' 8, '10' 10, '12' 12, '14' 14, '16' 16, '18' 18, '20' 20, '22' 22, '24' 24)
set ylabel 'MiB'
set yrange [0:180]
set ytics ('0' 0, '20' 20, '40' 40, '60' 60, '80' 80, '100' 100, '120' 120, '140' 140, '160' 160, '180' 180)
plot \
  'legs-fill.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'at the source', \
  'legs-fill.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'at the destination'
