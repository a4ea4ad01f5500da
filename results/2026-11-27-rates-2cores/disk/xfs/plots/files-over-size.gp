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
set xrange [1024:1048576]
set logscale x 2
set xtics ('1 KiB' 1024, '2 KiB' 2048, '4 KiB' 4096, '8 KiB' 8192, '16 KiB' 16384, '32 KiB' 32768, '64 KiB' 65536, '128 KiB' 131072, '256 KiB' 262144, '512 KiB' 524288, '1 MiB' 1048576)
set ylabel 'files/s'
set yrange [500:20000]
set logscale y 10
set ytics ('500' 500, '1000' 1000, '2000' 2000, '5000' 5000, '10,000' 10000, '20,000' 20000)
plot \
  'files-over-size.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg', \
  'files-over-size.dat' index 0 using 1:2:3:4 with yerrorbars lc rgb '#0b62a8' pt 0 notitle, \
  'files-over-size.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 1.4 pt 7 title 'rsync', \
  'files-over-size.dat' index 1 using 1:2:3:4 with yerrorbars lc rgb '#c8500a' pt 0 notitle
