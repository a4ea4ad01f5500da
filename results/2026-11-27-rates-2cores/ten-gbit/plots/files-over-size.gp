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
set xrange [131072:1048576]
set logscale x 2
set xtics ('128 KiB' 131072, '256 KiB' 262144, '512 KiB' 524288, '1 MiB' 1048576)
set ylabel 'files/s'
set yrange [500:5000]
set logscale y 10
set ytics ('500' 500, '1000' 1000, '2000' 2000, '5000' 5000)
plot \
  'files-over-size.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'earlier', \
  'files-over-size.dat' index 0 using 1:2:3:4 with yerrorbars lc rgb '#0b62a8' pt 0 notitle, \
  'files-over-size.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'thalweg', \
  'files-over-size.dat' index 1 using 1:2:3:4 with yerrorbars lc rgb '#c8500a' pt 0 notitle, \
  'files-over-size.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 pt 9 title 'rsync', \
  'files-over-size.dat' index 2 using 1:2:3:4 with yerrorbars lc rgb '#0a7d5a' pt 0 notitle
