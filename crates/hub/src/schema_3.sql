-- What happened to one job is asked for by whoever looks at it.
CREATE INDEX events_of_job ON events (job, id);
