# Run as: gnuplot runs-gen_67x64MiB.gp
set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'
set output 'runs-gen_67x64MiB.gnuplot.svg'
set title 'gen:67x64MiB: every run'
set grid lc rgb '#dddddd'
set key below
set datafile missing 'NaN'
set label 1 'One mark for each counted run; tools alternated within a round.' at screen 0.01,0.975 font ',8'
set tmargin 5
set xlabel 'round'
set xrange [0:4]
set xtics ('0' 0, '0.5' 0.5, '1' 1, '1.5' 1.5, '2' 2, '2.5' 2.5, '3' 3, '3.5' 3.5, '4' 4)
set ylabel 'Gbit/s'
set yrange [0:5.5]
set ytics ('0' 0, '0.5' 0.5, '1' 1, '1.5' 1.5, '2' 2, '2.5' 2.5, '3' 3, '3.5' 3.5, '4' 4, '4.5' 4.5, '5' 5, '5.5' 5.5)
plot \
  'runs-gen_67x64MiB.dat' index 0 using 1:2 with linespoints lc rgb '#0b62a8' lw 2.2 pt 5 title 'thalweg'
