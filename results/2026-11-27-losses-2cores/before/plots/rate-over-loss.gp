# Run as: gnuplot rate-over-loss.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'rate-over-loss.gnuplot.svg'
set title 'Rate over loss'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Medians; bars are the least and the most.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'loss'
set xrange [0.01:1]
set logscale x 10
set xtics ('0.01' 0.01, '0.02' 0.02, '0.05' 0.05, '0.1' 0.1, '0.2' 0.2, '0.5' 0.5, '1' 1)
set ylabel 'Gbit/s'
set yrange [0:1]
set ytics ('0' 0, '0.1' 0.1, '0.2' 0.2, '0.3' 0.30000000000000004, '0.4' 0.4, '0.5' 0.5, '0.6' 0.6000000000000001, '0.7' 0.7000000000000001, '0.8' 0.8, '0.9' 0.9, '1' 1)
plot \
  'rate-over-loss.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg, 20x64MiB, rate=1Gbit rtt=20ms cc=cubic streams=auto', \
  'rate-over-loss.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'thalweg, 20x64MiB, rate=1Gbit rtt=74ms cc=cubic streams=auto', \
  'rate-over-loss.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title 'thalweg, 20x64MiB, rate=1Gbit rtt=200ms cc=cubic streams=auto'
