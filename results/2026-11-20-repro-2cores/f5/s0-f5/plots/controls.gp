# Run as: gnuplot controls.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'controls.gnuplot.svg'
set title 'Rate over file size by congestion control'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'One way 74 ms, as the published path. Ours without other traffic.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'file size'
set xrange [1024:1099511627776]
set logscale x 2
set xtics ('1 KiB' 1024, '32 KiB' 32768, '1 MiB' 1048576, '32 MiB' 33554432, '1 GiB' 1073741824, '32 GiB' 34359738368, '1 TiB' 1099511627776)
set ylabel 'Gbit/s'
set yrange [0.2:100]
set logscale y 10
set ytics ('0.2' 0.2, '0.5' 0.5, '1' 1, '2' 2, '5' 5, '10' 10, '20' 20, '50' 50, '100' 100)
plot \
  'controls.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg, bbr', \
  'controls.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'thalweg, cubic', \
  'controls.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title 'thalweg, reno', \
  'controls.dat' index 3 using 1:2 with linespoints lc rgb '#0b62a8' lw 1.4 dt 2 pt 4 title 'zx, production, TLS, BBR (published)', \
  'controls.dat' index 4 using 1:2 with linespoints lc rgb '#c8500a' lw 1.4 dt 2 pt 6 title 'zx, production, TLS, CUBIC (published)', \
  'controls.dat' index 5 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 dt 2 pt 8 title 'zx, production, TLS, Reno (published)'
