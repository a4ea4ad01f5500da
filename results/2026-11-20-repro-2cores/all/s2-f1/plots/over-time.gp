# Run as: gnuplot over-time.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'over-time.gnuplot.svg'
set title 'Memory to memory, 16 streams, 75 ms'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Bytes that left the sending host''s interface, headers and retransmissions included.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'seconds'
set xrange [0:6]
set xtics ('0' 0, '0.5' 0.5, '1' 1, '1.5' 1.5, '2' 2, '2.5' 2.5, '3' 3, '3.5' 3.5, '4' 4, '4.5' 4.5, '5' 5, '5.5' 5.5, '6' 6)
set ylabel 'Gbit/s'
set yrange [0:1.1]
set ytics ('0' 0, '0.1' 0.1, '0.2' 0.2, '0.3' 0.30000000000000004, '0.4' 0.4, '0.5' 0.5, '0.6' 0.6000000000000001, '0.7' 0.7000000000000001, '0.8' 0.8, '0.9' 0.9, '1' 1, '1.1' 1.1)
plot \
  'over-time.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'flow, 16 streams'
