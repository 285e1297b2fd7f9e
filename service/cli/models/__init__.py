"""The commands on models: training, evaluation, calibration and cards."""
