# The shapes of the parameters of ResNet-50: 161 tensors of 102 MB together.


def shapes_of_resnet50():
    shapes = [(64, 3, 7, 7), (64,), (64,)]
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += [(width, inputs, 1, 1), (width,), (width,)]
            shapes += [(width, width, 3, 3), (width,), (width,)]
            shapes += [(4 * width, width, 1, 1), (4 * width,), (4 * width,)]
            if block == 0:
                shapes += [(4 * width, inputs, 1, 1), (4 * width,), (4 * width,)]
            inputs = 4 * width
    return [*shapes, (1000, 2048), (1000,)]
