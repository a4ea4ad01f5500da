# Run as: gnuplot processor-cost.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'processor-cost.gnuplot.svg'
set title 'Processor seconds per gigabyte, both ends'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Ours with TLS and digests; rivals as their settings say.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'file size'
set xrange [1048576:268435456]
set logscale x 2
set xtics ('1 MiB' 1048576, '2 MiB' 2097152, '4 MiB' 4194304, '8 MiB' 8388608, '16 MiB' 16777216, '32 MiB' 33554432, '64 MiB' 67108864, '128 MiB' 134217728, '256 MiB' 268435456)
set ylabel 'CPU s/GB'
set yrange [0:2]
set ytics ('0' 0, '0.2' 0.2, '0.4' 0.4, '0.6' 0.6000000000000001, '0.8' 0.8, '1' 1, '1.2' 1.2000000000000002, '1.4' 1.4000000000000001, '1.6' 1.6, '1.8' 1.8, '2' 2)
plot \
  'processor-cost.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg', \
  'processor-cost.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 1.4 pt 7 title 'globus-url-copy', \
  'processor-cost.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 pt 9 title 'rsync'
