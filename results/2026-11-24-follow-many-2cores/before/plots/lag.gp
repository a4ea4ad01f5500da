# Run as: gnuplot lag.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'lag.gnuplot.svg'
set title 'Lag of growing files'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'round trip 0.0 ms; the longest lag in each part of the time' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'time of the write (s)'
set xrange [0:40]
set xtics ('0' 0, '5' 5, '10' 10, '15' 15, '20' 20, '25' 25, '30' 30, '35' 35, '40' 40)
set ylabel 'lag (ms)'
set yrange [5:500]
set logscale y 10
set ytics ('5 ms' 5, '10 ms' 10, '20 ms' 20, '50 ms' 50, '100 ms' 100, '200 ms' 200, '500 ms' 500)
plot \
  'lag.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg'
