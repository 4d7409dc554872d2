"""KetScale's circuits in other libraries: layers of torch, estimators of scikit-learn."""
