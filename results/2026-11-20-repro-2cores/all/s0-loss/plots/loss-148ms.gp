# Run as: gnuplot loss-148ms.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'loss-148ms.gnuplot.svg'
set title 'Rate over loss at a round trip of 148ms'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Loss of segments in each direction, each by itself; TLS and digests on.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'probability of loss'
set xrange [0.00002:0.001]
set logscale x 10
set xtics ('2e-5' 0.00002, '5e-5' 0.00005, '0.0001' 0.0001, '0.0002' 0.0002, '0.0005' 0.0005, '0.001' 0.001)
set ylabel 'Gbit/s'
set yrange [0.01:0.5]
set logscale y 10
set ytics ('0.01' 0.01, '0.02' 0.02, '0.05' 0.05, '0.1' 0.1, '0.2' 0.2, '0.5' 0.5)
plot \
  'loss-148ms.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'cubic, streams auto', \
  'loss-148ms.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'cubic, streams 1', \
  'loss-148ms.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title 'reno, streams auto', \
  'loss-148ms.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 2.2 pt 11 title 'reno, streams 1', \
  'loss-148ms.dat' index 4 using 1:2 with linespoints lc rgb '#8a6d00' lw 2.2 pt 13 title 'bbr, streams auto', \
  'loss-148ms.dat' index 5 using 1:2 with linespoints lc rgb '#4a54c9' lw 2.2 pt 5 title 'bbr, streams 1', \
  'loss-148ms.dat' index 6 using 1:2 with lines lc rgb '#8a8f98' lw 1 title 'Mathis law, one stream'
