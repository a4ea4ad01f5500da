# Run as: gnuplot control-distance.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'control-distance.gnuplot.svg'
set title 'Three sets near and far'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Ours: control and data both at the distance. Published: only the control, at 0 and 36 ms.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'round trip'
set xrange [0:100]
set xtics ('0 ms' 0, '10 ms' 10, '20 ms' 20, '30 ms' 30, '40 ms' 40, '50 ms' 50, '60 ms' 60, '70 ms' 70, '80 ms' 80, '90 ms' 90, '100 ms' 100)
set ylabel 'rate / large set near'
set yrange [0:1]
set ytics ('0' 0, '0.1' 0.1, '0.2' 0.2, '0.3' 0.30000000000000004, '0.4' 0.4, '0.5' 0.5, '0.6' 0.6000000000000001, '0.7' 0.7000000000000001, '0.8' 0.8, '0.9' 0.9, '1' 1)
plot \
  'control-distance.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg, large', \
  'control-distance.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'thalweg, medium', \
  'control-distance.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title 'thalweg, small', \
  'control-distance.dat' index 3 using 1:2 with linespoints lc rgb '#0b62a8' lw 1.4 dt 2 pt 4 title 'GridFTP, large (2-8 GB)', \
  'control-distance.dat' index 4 using 1:2 with linespoints lc rgb '#c8500a' lw 1.4 dt 2 pt 6 title 'GridFTP, medium (8 MB-1 GB)', \
  'control-distance.dat' index 5 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 dt 2 pt 8 title 'GridFTP, small (8 KB-4 MB)'
