# Run as: gnuplot together.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'together.gnuplot.svg'
set title 'Two tuned copies that begin at once'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Content that was sent, from one event of the command to the next; the first round.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'seconds'
set xrange [0:12]
set xtics ('0' 0, '1' 1, '2' 2, '3' 3, '4' 4, '5' 5, '6' 6, '7' 7, '8' 8, '9' 9, '10' 10, '11' 11, '12' 12)
set ylabel 'Mbit/s'
set yrange [0:300]
set ytics ('0' 0, '50' 50, '100' 100, '150' 150, '200' 200, '250' 250, '300' 300)
plot \
  'together.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'copy 1', \
  'together.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'copy 2', \
  [0:12] 300 with lines lc rgb '#8a8f98' lw 1 dt 3 title 'link'
