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
set xrange [16384:1073741824]
set logscale x 2
set xtics ('16 KiB' 16384, '64 KiB' 65536, '256 KiB' 262144, '1 MiB' 1048576, '4 MiB' 4194304, '16 MiB' 16777216, '64 MiB' 67108864, '256 MiB' 268435456, '1 GiB' 1073741824)
set ylabel 'files/s'
set yrange [0.05:20000]
set logscale y 10
set ytics ('0.1' 0.1, '1' 1, '10' 10, '100' 100, '1000' 1000, '10,000' 10000)
plot \
  'files-over-size.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg, rate=1Gbit rtt=0s loss=0 cc=cubic streams=auto', \
  'files-over-size.dat' index 1 using 1:2 with linespoints lc rgb '#c8500a' lw 2.2 pt 7 title 'thalweg, rate=1Gbit rtt=20ms loss=0 cc=cubic streams=auto', \
  'files-over-size.dat' index 2 using 1:2 with linespoints lc rgb '#0a7d5a' lw 2.2 pt 9 title 'thalweg, rate=1Gbit rtt=74ms loss=0 cc=cubic streams=auto', \
  'files-over-size.dat' index 3 using 1:2 with linespoints lc rgb '#a3418a' lw 2.2 pt 11 title 'thalweg, rate=1Gbit rtt=100ms loss=0 cc=cubic streams=auto', \
  'files-over-size.dat' index 4 using 1:2 with linespoints lc rgb '#8a6d00' lw 2.2 pt 13 title 'thalweg, rate=1Gbit rtt=200ms loss=0 cc=cubic streams=auto', \
  'files-over-size.dat' index 5 using 1:2 with linespoints lc rgb '#4a54c9' lw 2.2 pt 5 title 'thalweg, rate=2Gbit rtt=0s loss=0 cc=cubic streams=auto', \
  'files-over-size.dat' index 6 using 1:2 with linespoints lc rgb '#7a4a1e' lw 2.2 pt 7 title 'thalweg, rate=2Gbit rtt=20ms loss=0 cc=cubic streams=auto', \
  'files-over-size.dat' index 7 using 1:2 with linespoints lc rgb '#4f6272' lw 2.2 pt 9 title 'thalweg, rate=2Gbit rtt=74ms loss=0 cc=cubic streams=auto'
