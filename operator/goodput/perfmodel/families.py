"""Host time of a request, until the capacity of a replica takes it from the step times (`StepTimes.request`)."""

# HTTP, tokenisation and hand-over between processes before a request is scheduled.
REQUEST_SECONDS = 0.010
