# Run as: gnuplot processors.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'processors.gnuplot.svg'
set title 'Processors over rate'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'computed from docs/models/s1-*.json by the planner''s solver; nothing was measured on this machine' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'GB/s'
set xrange [0:2]
set xtics ('0' 0, '0.2' 0.2, '0.4' 0.4, '0.6' 0.6000000000000001, '0.8' 0.8, '1' 1, '1.2' 1.2000000000000002, '1.4' 1.4000000000000001, '1.6' 1.6, '1.8' 1.8, '2' 2)
set ylabel 'percent of a core'
set yrange [0:1100]
set ytics ('0' 0, '100' 100, '200' 200, '300' 300, '400' 400, '500' 500, '600' 600, '700' 700, '800' 800, '900' 900, '1000' 1000, '1100' 1100)
plot \
  'processors.dat' index 0 using 1:2 with lines lc rgb '#8a8f98' lw 1 title 'application and TCP'
