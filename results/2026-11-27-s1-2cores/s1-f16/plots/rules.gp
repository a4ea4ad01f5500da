# Run as: gnuplot rules.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'rules.gnuplot.svg'
set title 'Planner and rules'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'computed from docs/models/s1-*.json by the planner''s solver; nothing was measured on this machine' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'file size, MB'
set xrange [1:100]
set logscale x 10
set xtics ('1' 1, '2' 2, '5' 5, '10' 10, '20' 20, '50' 50, '100' 100)
set ylabel 'GB/s'
set yrange [0:1.2000000000000002]
set ytics ('0' 0, '0.1' 0.1, '0.2' 0.2, '0.3' 0.30000000000000004, '0.4' 0.4, '0.5' 0.5, '0.6' 0.6000000000000001, '0.7' 0.7000000000000001, '0.8' 0.8, '0.9' 0.9, '1' 1, '1.1' 1.1, '1.2' 1.2000000000000002)
plot \
  'rules.dat' index 0 using 1:2 with lines lc rgb '#8a8f98' lw 1 title 'one stream', \
  'rules.dat' index 1 using 1:2 with lines lc rgb '#8a8f98' lw 1 title 'rule of Globus', \
  'rules.dat' index 2 using 1:2 with lines lc rgb '#8a8f98' lw 1 title 'planner', \
  'rules.dat' index 3 using 1:2 with lines lc rgb '#8a8f98' lw 1 title 'best of all settings'
