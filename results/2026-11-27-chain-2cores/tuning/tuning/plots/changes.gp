# Run as: gnuplot changes.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'changes.gnuplot.svg'
set title 'Copies over a link that changes'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Content that was sent, from one event of the command to the next; the first round.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'seconds'
set xrange [0:30]
set xtics ('0' 0, '5' 5, '10' 10, '15' 15, '20' 20, '25' 25, '30' 30)
set ylabel 'Mbit/s'
set yrange [0:400]
set ytics ('0' 0, '50' 50, '100' 100, '150' 150, '200' 200, '250' 250, '300' 300, '350' 350, '400' 400)
plot \
  'changes.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'tuned', \
  'changes.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 1.4 pt 7 title '1 stream', \
  'changes.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 pt 9 title '2 streams', \
  'changes.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 1.4 pt 11 title '4 streams', \
  'changes.dat' index 4 using 1:2 with linespoints lc rgb '#8a6d00' lw 1.4 pt 13 title '8 streams', \
  'changes.dat' index 5 using 1:2 with linespoints lc rgb '#4a54c9' lw 1.4 pt 5 title '16 streams', \
  'changes.dat' index 6 using 1:2 with lines lc rgb '#8a8f98' lw 1 title 'link'
