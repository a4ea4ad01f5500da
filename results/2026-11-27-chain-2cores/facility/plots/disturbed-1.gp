# Run as: gnuplot disturbed-1.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'disturbed-1.gnuplot.svg'
set title 'The chain, disturbed, round 1'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'What is under way counts as reached; the store and the instrument''s storage stand still for 3 of every 15 s.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'seconds'
set xrange [0:90]
set xtics ('0' 0, '10' 10, '20' 20, '30' 30, '40' 40, '50' 50, '60' 60, '70' 70, '80' 80, '90' 90)
set ylabel 'GB'
set yrange [0:4]
set ytics ('0' 0, '0.5' 0.5, '1' 1, '1.5' 1.5, '2' 2, '2.5' 2.5, '3' 3, '3.5' 3.5, '4' 4)
plot \
  'disturbed-1.dat' index 0 using 1:2 with linespoints lc rgb '#c8500a' lw 1.4 pt 7 title 'written by the instrument', \
  'disturbed-1.dat' index 1 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'delivered, or under way', \
  'disturbed-1.dat' index 2 using 1:2 with lines lc rgb '#8a8f98' lw 1 title 'slowest leg alone'
