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
set xrange [1073741824:2147483648]
set logscale x 2
set xtics ('1 GiB' 1073741824, '2 GiB' 2147483648)
set ylabel 'files/s'
set yrange [0.1:2]
set logscale y 10
set ytics ('0.1' 0.1, '0.2' 0.2, '0.5' 0.5, '1' 1, '2' 2)
plot \
  'files-over-size.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg', \
  'files-over-size.dat' index 0 using 1:2:3:4 with yerrorbars lc rgb '#0b62a8' pt 0 notitle, \
  'files-over-size.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 1.4 pt 7 title 's5cmd', \
  'files-over-size.dat' index 1 using 1:2:3:4 with yerrorbars lc rgb '#c8500a' pt 0 notitle, \
  'files-over-size.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 1.4 pt 9 title 'aws-cli', \
  'files-over-size.dat' index 2 using 1:2:3:4 with yerrorbars lc rgb '#0a7d5a' pt 0 notitle, \
  'files-over-size.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 1.4 pt 11 title 'boto3-crt', \
  'files-over-size.dat' index 3 using 1:2:3:4 with yerrorbars lc rgb '#a3418a' pt 0 notitle, \
  'files-over-size.dat' index 4 using 1:2 with linespoints lc rgb '#8a6d00' lw 1.4 pt 13 title 'rclone', \
  'files-over-size.dat' index 4 using 1:2:3:4 with yerrorbars lc rgb '#8a6d00' pt 0 notitle
