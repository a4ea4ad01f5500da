# Run as: gnuplot lag.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'lag.gnuplot.svg'
set title 'Lag of growing files'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'round trip 74.0 ms; the longest lag in each part of the time' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'time of the write (s)'
set xrange [0:4]
set xtics ('0' 0, '0.5' 0.5, '1' 1, '1.5' 1.5, '2' 2, '2.5' 2.5, '3' 3, '3.5' 3.5, '4' 4)
set ylabel 'lag (ms)'
set yrange [200:1000]
set logscale y 10
set ytics ('200 ms' 200, '500 ms' 500, '1 s' 1000)
plot \
  'lag.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg'
