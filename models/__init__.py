"""The science of Turnwise: encoding, scores, planning, training and evaluation."""
