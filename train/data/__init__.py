"""Data: sources of labelled pictures, their order and streams, and augmentation on the device.

`sources.open_source(name)` gives a `Dataset`. Splits held in memory are gathered by the rows of
`order.train_indices`; large ones are read through `pipeline.TrainStream`. `augment.augment` then
acts on the device, after smoothing.
"""
