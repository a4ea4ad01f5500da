# Run as: gnuplot rate-over-size-6.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'rate-over-size-6.gnuplot.svg'
set title 'Rate over file size, rate=2Gbit rtt=0s loss=0 cc=cubic streams=auto'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'Medians; bars are the least and the most. File size is the mean of a set.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'file size'
set xrange [16384:1073741824]
set logscale x 2
set xtics ('16 KiB' 16384, '64 KiB' 65536, '256 KiB' 262144, '1 MiB' 1048576, '4 MiB' 4194304, '16 MiB' 16777216, '64 MiB' 67108864, '256 MiB' 268435456, '1 GiB' 1073741824)
set ylabel 'Gbit/s'
set yrange [0:2]
set ytics ('0' 0, '0.2' 0.2, '0.4' 0.4, '0.6' 0.6000000000000001, '0.8' 0.8, '1' 1, '1.2' 1.2000000000000002, '1.4' 1.4000000000000001, '1.6' 1.6, '1.8' 1.8, '2' 2)
plot \
  'rate-over-size-6.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg'
