"""What HTTP and gRPC share: requests, responses, what is said of models, and the service that answers.

``http`` and ``grpc`` know this folder and ``tensors``; ``models`` implements ``Service``; neither knows the other.
"""
