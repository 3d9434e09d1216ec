"""OpenVINO's CPU plug-in as a back end of Dovetail: whole subgraphs, each compiled into one model."""
