# Run as: gnuplot files-over-size.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'files-over-size.gnuplot.svg'
set title 'Files per second over file size'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Medians; bars are the least and the most. File size is the mean of a set.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'file size'
set xrange [524288:268435456]
set logscale x 2
set xtics ('512 KiB' 524288, '1 MiB' 1048576, '2 MiB' 2097152, '4 MiB' 4194304, '8 MiB' 8388608, '16 MiB' 16777216, '32 MiB' 33554432, '64 MiB' 67108864, '128 MiB' 134217728, '256 MiB' 268435456)
set ylabel 'files/s'
set yrange [0.2:200]
set logscale y 10
set ytics ('0.2' 0.2, '0.5' 0.5, '1' 1, '2' 2, '5' 5, '10' 10, '20' 20, '50' 50, '100' 100, '200' 200)
plot \
  'files-over-size.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg, rate=1Gbit rtt=200us loss=0 cc=cubic streams=auto', \
  'files-over-size.dat' index 0 using 1:2:3:4 with yerrorbars lc rgb '#0b62a8' pt 0 notitle, \
  'files-over-size.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'thalweg, rate=1Gbit rtt=36ms loss=0 cc=cubic streams=auto', \
  'files-over-size.dat' index 1 using 1:2:3:4 with yerrorbars lc rgb '#c8500a' pt 0 notitle, \
  'files-over-size.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title 'thalweg, rate=1Gbit rtt=100ms loss=0 cc=cubic streams=auto', \
  'files-over-size.dat' index 2 using 1:2:3:4 with yerrorbars lc rgb '#0a7d5a' pt 0 notitle
