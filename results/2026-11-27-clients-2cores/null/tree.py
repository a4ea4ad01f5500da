import os, sys
import boto3, botocore.session
from botocore.config import Config
from s3transfer import crt
way, url, source, target = sys.argv[1:]
session, config = botocore.session.get_session(), Config(s3=dict(addressing_style="path"))
keys = crt.BotocoreCRTCredentialsWrapper(session.get_credentials()).to_crt_credentials_provider()
client = crt.create_s3_crt_client("us-east-1", keys, target_throughput=int(25e9 / 8), use_ssl=False)
settings = dict(region_name="us-east-1", endpoint_url=url, config=config)
with crt.CRTTransferManager(client, crt.BotocoreCRTRequestSerializer(session, dict(settings))) as manager:
    futures = []
    if way == "put":
        for above, _, names in os.walk(source):
            for path in (os.path.join(above, name) for name in names):
                key = os.path.join(target, os.path.relpath(path, source))
                futures.append(manager.upload(path, "bkt", key))
    else:
        pages = boto3.client("s3", **settings).get_paginator("list_objects_v2")
        keys = (one["Key"] for page in pages.paginate(Bucket="bkt", Prefix=source + "/") for one in page["Contents"])
        for key in keys:
            path = os.path.join(target, key[len(source) + 1:])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if not key.endswith("/"):
                futures.append(manager.download("bkt", key, path))
    for future in futures:
        future.result()
