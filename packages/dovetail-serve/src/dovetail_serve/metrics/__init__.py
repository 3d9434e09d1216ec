"""What the server tells its operator: metrics for Prometheus, logs, traces.

Counts come from the statistics that models keep anyway and are read when somebody asks. ``ObservedService`` stands
between HTTP or gRPC and the models: it sees failures, and each request where a log or traces of requests are wanted.
"""
