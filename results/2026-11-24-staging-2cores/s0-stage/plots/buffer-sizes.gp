# Run as: gnuplot buffer-sizes.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'buffer-sizes.gnuplot.svg'
set title 'Use of the path over the size of the buffer'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Bytes sent in whole periods of the storage, over what the path carries alone in that time.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'MiB'
set xrange [0:100]
set xtics ('0' 0, '10' 10, '20' 20, '30' 30, '40' 40, '50' 50, '60' 60, '70' 70, '80' 80, '90' 90, '100' 100)
set ylabel 'share of the path'
set yrange [0:1.1]
set ytics ('0' 0, '0.1' 0.1, '0.2' 0.2, '0.3' 0.30000000000000004, '0.4' 0.4, '0.5' 0.5, '0.6' 0.6000000000000001, '0.7' 0.7000000000000001, '0.8' 0.8, '0.9' 0.9, '1' 1, '1.1' 1.1)
plot \
  'buffer-sizes.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'measured', \
  'buffer-sizes.dat' index 1 using 1:2 with lines lc rgb '#8a8f98' lw 1 title 'model'
