# Run as: gnuplot latency.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'latency.gnuplot.svg'
set title 'TCP over latency, host as distributed and tuned'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Shares of the link: 2 Gbit/s here, 100 Gbit/s published. Latency is one way.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'one-way latency'
set xrange [0:100]
set xtics ('0 ms' 0, '10 ms' 10, '20 ms' 20, '30 ms' 30, '40 ms' 40, '50 ms' 50, '60 ms' 60, '70 ms' 70, '80 ms' 80, '90 ms' 90, '100 ms' 100)
set ylabel 'share of the link'
set yrange [0:1]
set ytics ('0' 0, '0.1' 0.1, '0.2' 0.2, '0.3' 0.30000000000000004, '0.4' 0.4, '0.5' 0.5, '0.6' 0.6000000000000001, '0.7' 0.7000000000000001, '0.8' 0.8, '0.9' 0.9, '1' 1)
plot \
  'latency.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'flow, 1 stream, stock host', \
  'latency.dat' index 1 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 pt 9 title 'iperf3, 1 stream, stock host', \
  'latency.dat' index 2 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'flow, 1 stream, tuned host', \
  'latency.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 1.4 pt 11 title 'iperf3, 1 stream, tuned host', \
  'latency.dat' index 4 using 1:2 with linespoints lc rgb '#0b62a8' lw 1.4 dt 2 pt 4 title 'iperf3 on a fresh host (published)', \
  'latency.dat' index 5 using 1:2 with linespoints lc rgb '#c8500a' lw 1.4 dt 2 pt 6 title 'iperf3, tuned (published)'
