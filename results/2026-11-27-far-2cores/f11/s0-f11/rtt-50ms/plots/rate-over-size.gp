# Run as: gnuplot rate-over-size.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'rate-over-size.gnuplot.svg'
set title 'Rate over file size'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Medians; bars are the least and the most. File size is the mean of a set.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'file size'
set xrange [1073741824:2147483648]
set logscale x 2
set xtics ('1 GiB' 1073741824, '2 GiB' 2147483648)
set ylabel 'Gbit/s'
set yrange [0:0.5]
set ytics ('0' 0, '0.05' 0.05, '0.1' 0.1, '0.15' 0.15000000000000002, '0.2' 0.2, '0.25' 0.25, '0.3' 0.30000000000000004, '0.35' 0.35000000000000003, '0.4' 0.4, '0.45' 0.45, '0.5' 0.5)
plot \
  'rate-over-size.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg', \
  'rate-over-size.dat' index 0 using 1:2:3:4 with yerrorbars lc rgb '#0b62a8' pt 0 notitle
