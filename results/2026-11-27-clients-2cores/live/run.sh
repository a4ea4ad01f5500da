# The `live` suite against servers of this machine: versitygw and XRootD with TLS. Usage: bash run.sh E2E-TEST-PROGRAM THALWEG WORKSPACE
w=/dev/shm/live; rm -rf $w; mkdir -p $w/store/bkt $w/s0/d; chmod 755 $w; cd $w
ROOT_ACCESS_KEY=lab ROOT_SECRET_KEY=lab-secret-0123 versitygw --port 127.0.0.1:17071 posix $w/store >$w/gw.log 2>&1 &
gw=$!
(mkdir ca; openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca
openssl req -newkey rsa:2048 -nodes -keyout host.key -out host.csr -subj /CN=localhost
printf 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n' > ext
openssl x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out host.pem
cp ca.pem ca/; openssl rehash ca; chmod 755 ca; chmod 644 ca/*.pem host.pem; chmod 400 host.key; chown nobody host.key; chown -R nobody s0) >ssl.log 2>&1
cat >x.cf <<C
xrd.port 17072
xrd.network nodnr norpipa
all.export /d
oss.localroot $w/s0
all.adminpath $w/s0/adm
all.pidpath $w/s0/adm
xrd.tls $w/host.pem $w/host.key
xrd.tlsca certdir $w/ca
xrd.protocol http:17073 libXrdHttp.so
http.exthandler xrdtpc libXrdHttpTPC.so
http.desthttps yes
xrootd.chksum adler32
C
xrootd -R nobody -c x.cf >xrootd.log 2>&1 &
xr=$!; trap 'kill $gw $xr; rm -rf $w' EXIT; sleep 2
export AWS_ACCESS_KEY_ID=lab AWS_SECRET_ACCESS_KEY=lab-secret-0123 AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:17071
export THALWEG_LIVE_S3=s3://bkt/x THALWEG_LIVE_DAV=davs://localhost:17073/d SSL_CERT_FILE=$w/ca.pem BEARER_TOKEN=none
cd "$3/crates/cli" && THALWEG_BIN=$2 $1 live:: --nocapture --test-threads 1
