# Run as: gnuplot one-disk-set.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'one-disk-set.gnuplot.svg'
set title 'One disk set, no limit behind it'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'computed from docs/models/s1-*.json by the planner''s solver; nothing was measured on this machine' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'streams of each disk set'
set xrange [0:16]
set xtics ('0' 0, '2' 2, '4' 4, '6' 6, '8' 8, '10' 10, '12' 12, '14' 14, '16' 16)
set ylabel 'GB/s'
set yrange [0:0.45]
set ytics ('0' 0, '0.05' 0.05, '0.1' 0.1, '0.15' 0.15000000000000002, '0.2' 0.2, '0.25' 0.25, '0.3' 0.30000000000000004, '0.35' 0.35000000000000003, '0.4' 0.4, '0.45' 0.45)
plot \
  'one-disk-set.dat' index 0 using 1:2 with lines lc rgb '#8a8f98' lw 1 title '1 MB files', \
  'one-disk-set.dat' index 1 using 1:2 with lines lc rgb '#8a8f98' lw 1 title '10 MB files', \
  'one-disk-set.dat' index 2 using 1:2 with lines lc rgb '#8a8f98' lw 1 title '100 MB files'
