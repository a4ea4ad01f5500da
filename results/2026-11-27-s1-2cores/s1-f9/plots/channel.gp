# Run as: gnuplot channel.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'channel.gnuplot.svg'
set title 'Disk sets on one channel'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'computed from docs/models/s1-*.json by the planner''s solver; nothing was measured on this machine' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'streams'
set xrange [0:16]
set xtics ('0' 0, '2' 2, '4' 4, '6' 6, '8' 8, '10' 10, '12' 12, '14' 14, '16' 16)
set ylabel 'GB/s'
set yrange [0:2]
set ytics ('0' 0, '0.2' 0.2, '0.4' 0.4, '0.6' 0.6000000000000001, '0.8' 0.8, '1' 1, '1.2' 1.2000000000000002, '1.4' 1.4000000000000001, '1.6' 1.6, '1.8' 1.8, '2' 2)
plot \
  'channel.dat' index 0 using 1:2 with lines lc rgb '#8a8f98' lw 1 title '1 set', \
  'channel.dat' index 1 using 1:2 with lines lc rgb '#8a8f98' lw 1 title '2 sets', \
  'channel.dat' index 2 using 1:2 with lines lc rgb '#8a8f98' lw 1 title '3 sets', \
  'channel.dat' index 3 using 1:2 with lines lc rgb '#8a8f98' lw 1 title '4 sets'
